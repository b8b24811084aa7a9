//! A graph as an SVG: its nodes, covers and edges come in; boxes with their texts, and curves between them, go out.

use std::fmt::Write as _;

use super::layout::{Edge, Layout, Rect, layout};
use super::markup::escaped;
use super::{Decided, Kind, Node};

/// Colours that there are for covers; the style sheet has as many.
const HUES: usize = 7;

/// How wide a letter is: texts are of one width, so that they fit whatever the font is.
const LETTER: f64 = 7.3;
const SMALL: f64 = 6.8;

/// A node's height, and room beside its text.
const HIGH: f64 = 30.0;
const BESIDE: f64 = 12.0;

/// Letters that are shown of a text; all of them are in its title.
const MOST: usize = 28;

/// How far a drawing may shrink before it is scrolled.
const SHRINK: f64 = 0.72;

/// The colour of a cover: covers of one name, but for a number at its end, have one.
pub(super) fn hue(graph: &Decided, cover: usize) -> usize {
    let kind = |i: usize| graph.covers[i].name.split('.').next().unwrap_or_default();
    let mut kinds: Vec<&str> = Vec::new();
    for i in 0..=cover {
        if !kinds.contains(&kind(i)) {
            kinds.push(kind(i));
        }
    }
    kinds.iter().position(|k| *k == kind(cover)).unwrap_or(0) % HUES
}

/// The texts of a node: what it does, and its name where that says more.
fn texts(node: &Node) -> (String, String) {
    let counted = node.name.strip_prefix(&node.does).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('_').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    });
    match (node.does.is_empty(), node.name.is_empty() || counted) {
        (true, _) => (String::new(), short(&node.name)),
        (false, true) => (short(&node.does), short(node.name.strip_prefix(&node.does).unwrap_or_default())),
        (false, false) => (short(&node.does), format!(" {}", short(&node.name))),
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= MOST {
        return text.to_string();
    }
    // Names differ at their ends.
    let letters: Vec<char> = text.chars().collect();
    let half = MOST / 2;
    letters[..half - 1].iter().chain(['…'].iter()).chain(&letters[letters.len() - half..]).collect()
}

/// Room that a text needs; letters that are not of one width count twice.
fn width(text: &str, letter: f64) -> f64 {
    text.chars().map(|c| if (c as u32) < 0x1100 || c == '…' { letter } else { 2.0 * letter }).sum()
}

fn size(node: &Node) -> (f64, f64) {
    let (does, name) = texts(node);
    (width(&does, LETTER) + width(&name, LETTER) + 2.0 * BESIDE, HIGH)
}

/// Where everything lies.
pub(super) fn placed(graph: &Decided) -> Layout {
    let sizes: Vec<(f64, f64)> = graph.nodes.iter().map(size).collect();
    let names: Vec<(f64, f64)> = graph.covers.iter().map(|c| (width(&short(&c.name), SMALL) + 4.0, 14.0)).collect();
    layout(graph, &sizes, &names)
}

/// The drawing, whose names in the page begin with the graph's number.
pub(super) fn drawn(graph: &Decided, number: usize) -> String {
    let result = placed(graph);
    let (wide, high) = result.size;
    let mut out = format!(
        "<svg class=\"graph\" role=\"img\" aria-labelledby=\"g{number}-title g{number}-desc\" \
         viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" height=\"{high:.0}\" \
         style=\"min-width:{:.0}px;max-width:{wide:.0}px\">\n<title id=\"g{number}-title\">Graph of {} nodes</title>\n\
         <desc id=\"g{number}-desc\">{}</desc>\n\
         <defs><marker id=\"g{number}-end\" viewBox=\"0 0 6 6\" refX=\"5.2\" refY=\"3\" markerWidth=\"6\" \
         markerHeight=\"6\" orient=\"auto\"><path class=\"end\" d=\"M0.6 0.6 5.6 3 0.6 5.4z\"/></marker></defs>\n",
        wide * SHRINK,
        graph.nodes.len(),
        described(graph)
    );
    for (i, rect) in result.covers.iter().enumerate() {
        let Some(rect) = rect else { continue };
        let name = &graph.covers[i].name;
        let _ = writeln!(
            out,
            "<g class=\"cover h{}\"><title>one launch: {}</title>{}<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            hue(graph, i),
            escaped(name),
            boxed(rect, 12.0),
            rect.x + 10.0,
            rect.y + 16.0,
            escaped(&short(name))
        );
    }
    for edge in &result.edges {
        let _ = writeln!(
            out,
            "<path class=\"edge\" marker-end=\"url(#g{number}-end)\" d=\"{}\"><title>{} reads {}</title></path>",
            way(edge),
            escaped(&graph.nodes[edge.to].name),
            escaped(&graph.nodes[edge.from].name)
        );
    }
    for (i, rect) in result.nodes.iter().enumerate() {
        node(&mut out, graph, i, rect);
    }
    out.push_str("</svg>\n");
    out
}

fn node(out: &mut String, graph: &Decided, i: usize, rect: &Rect) {
    let node = &graph.nodes[i];
    let kind = match node.kind {
        Kind::Work => "work",
        Kind::Input => "input",
        Kind::View => "view",
    };
    let cover = graph.cover(i).map_or(String::new(), |cover| format!(" in h{}", hue(graph, cover)));
    let seen = if node.is_seen { " seen" } else { "" };
    let round = if node.kind == Kind::Input { HIGH / 2.0 } else { 7.0 };
    let (does, name) = texts(node);
    let _ = writeln!(
        out,
        "<g class=\"node {kind}{cover}{seen}\"><title>{}: {}</title>{}<text x=\"{:.1}\" y=\"{:.1}\">{}{}</text></g>",
        escaped(&node.name),
        escaped(if node.does.is_empty() { kind } else { &node.does }),
        boxed(rect, round),
        rect.x + rect.wide / 2.0,
        rect.y + rect.high / 2.0 + 4.2,
        if does.is_empty() { String::new() } else { format!("<tspan class=\"does\">{}</tspan>", escaped(&does)) },
        if name.is_empty() { String::new() } else { format!("<tspan>{}</tspan>", escaped(&name)) },
    );
}

fn boxed(rect: &Rect, round: f64) -> String {
    let Rect { x, y, wide, high } = rect;
    format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" rx=\"{round}\"/>")
}

/// A smooth curve through points, upright in each of them.
fn way(edge: &Edge) -> String {
    let mut out = String::new();
    let mut last: Option<(f64, f64)> = None;
    for (x, y) in edge.points.iter().copied() {
        match last {
            None => out.push_str(&format!("M{x:.1} {y:.1}")),
            Some((x0, y0)) if (x - x0).abs() < 0.5 && (y - y0).abs() < 0.5 => continue,
            Some((x0, _)) if (x - x0).abs() < 0.5 => out.push_str(&format!("L{x:.1} {y:.1}")),
            Some((x0, y0)) => {
                let middle = (y0 + y) / 2.0;
                out.push_str(&format!("C{x0:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}"));
            }
        }
        last = Some((x, y));
    }
    out
}

/// What the drawing shows, in a sentence.
fn described(graph: &Decided) -> String {
    let covers: Vec<String> = (graph.covers.iter().enumerate())
        .filter_map(|(cover, result)| {
            let of = |node: &usize| graph.cover(*node) == Some(cover);
            let nodes: Vec<&str> = (0..graph.nodes.len()).filter(of).map(|n| graph.nodes[n].name.as_str()).collect();
            (!nodes.is_empty()).then(|| format!("{} computes {}", escaped(&result.name), escaped(&nodes.join(", "))))
        })
        .collect();
    match (covers.is_empty(), graph.plain.is_empty()) {
        (true, true) => "Nothing is covered.".to_string(),
        (true, false) => format!("Nothing is covered: {} runs it.", escaped(&graph.plain)),
        (false, true) => format!("{}.", covers.join("; ")),
        (false, false) => format!("{}; {} runs what is left.", covers.join("; "), escaped(&graph.plain)),
    }
}
