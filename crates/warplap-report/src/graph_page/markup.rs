//! The page around its graphs: head, style, a list of what is on it, and the text of each graph.

use std::fmt::Write as _;

use super::drawing::{drawn, hue};
use super::page_rows::{headline, page_rows, unmeasured};
use super::{Decided, Kind, Page};

const STYLE: &str = include_str!("style.css");

/// The whole page. It may load nothing and run nothing: the browser is told so.
pub(super) fn page(page: &Page) -> String {
    let title = escaped(if page.title.is_empty() { "Fused graphs" } else { &page.title });
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    if page.graphs.is_empty() {
        out.push_str("<p>No graph was decided yet: graphs are found and decided at their first call.</p>\n");
    }
    if page.graphs.len() > 1 {
        out.push_str("<nav aria-label=\"Graphs\">\n<ol class=\"list\">\n");
        for (i, graph) in page.graphs.iter().enumerate() {
            let _ = writeln!(out, "<li><a href=\"#g{i}\">{}</a> {}</li>", name(graph, i), headline(graph));
        }
        out.push_str("</ol>\n</nav>\n");
    }
    for (i, graph) in page.graphs.iter().enumerate() {
        section(&mut out, graph, i);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn name(graph: &Decided, number: usize) -> String {
    if graph.title.is_empty() { format!("Graph {}", number + 1) } else { escaped(&graph.title) }
}

fn section(out: &mut String, graph: &Decided, number: usize) {
    let _ = write!(
        out,
        "<section id=\"g{number}\" aria-labelledby=\"g{number}-name\">\n<h2 id=\"g{number}-name\">{}</h2>\n\
         <p class=\"how\">{} <span class=\"badge\">{}</span></p>\n",
        name(graph, number),
        headline(graph),
        escaped(&graph.how)
    );
    if graph.nodes.is_empty() {
        out.push_str("<p>The graph has no nodes.</p>\n");
    } else {
        out.push_str("<div class=\"figure\" tabindex=\"0\" role=\"region\" aria-label=\"The graph, drawn\">\n");
        out.push_str(&drawn(graph, number));
        out.push_str("</div>\n");
        legend(out, graph);
        listed(out, graph);
    }
    out.push_str(&page_rows(graph));
    out.push_str(&unmeasured(graph));
    if !graph.key.is_empty() {
        let _ = writeln!(out, "<p class=\"key\"><span>key</span> <code>{}</code></p>", escaped(&graph.key));
    }
    out.push_str("</section>\n");
}

/// What boxes mean, as far as there are such boxes.
fn legend(out: &mut String, graph: &Decided) {
    let plain = if graph.plain.is_empty() { "by itself".to_string() } else { escaped(&graph.plain) };
    let covered = (0..graph.nodes.len()).any(|node| graph.cover(node).is_some());
    let has =
        |kind: Kind| graph.nodes.iter().enumerate().any(|(i, node)| node.kind == kind && graph.cover(i).is_none());
    let all = [
        (covered, "covered", "one launch of warplap".to_string()),
        (has(Kind::Work), "work", plain),
        (has(Kind::View), "view", "computes nothing".to_string()),
        (has(Kind::Input), "input", "comes in".to_string()),
        (graph.nodes.iter().any(|node| node.is_seen), "seen", "goes out".to_string()),
    ];
    out.push_str("<ul class=\"legend\">\n");
    for (_, class, text) in all.iter().filter(|(is_there, ..)| *is_there) {
        let _ = writeln!(out, "<li><span class=\"key-{class}\" aria-hidden=\"true\"></span>{text}</li>");
    }
    out.push_str("</ul>\n");
}

/// The graph as a table, for those who do not see it.
fn listed(out: &mut String, graph: &Decided) {
    let count = graph.nodes.len();
    let _ = write!(
        out,
        "<details><summary>The {count} nodes as a table</summary>\n<div class=\"wide\"><table class=\"nodes\">\n\
         <thead><tr><th scope=\"col\">node</th><th scope=\"col\">does</th><th scope=\"col\">reads</th>\
         <th scope=\"col\">computed by</th></tr></thead>\n<tbody>\n"
    );
    for (i, node) in graph.nodes.iter().enumerate() {
        let reads: Vec<String> = graph.reads(i).into_iter().map(|read| escaped(&graph.nodes[read].name)).collect();
        let who = match (graph.cover(i), node.kind) {
            (Some(cover), _) => {
                let name = escaped(&graph.covers[cover].name);
                format!("<span class=\"dot h{}\" aria-hidden=\"true\"></span>warplap {name}", hue(graph, cover))
            }
            (None, Kind::Input) => "comes in".to_string(),
            (None, _) => escaped(&graph.plain),
        };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td><code>{}</code></td><td>{who}</td></tr>",
            escaped(&node.name),
            escaped(&node.does),
            reads.join(", ")
        );
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// Text that is nothing but text in a page, and in what stands between quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            // What turns the direction of text could hide what follows.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(escaped("a\0b\u{202e}c\n"), "a\u{fffd}b\u{fffd}c ");
    }
}
