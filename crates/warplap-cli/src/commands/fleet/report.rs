//! `warplap fleet report`: what a fleet has, wants and could not do, and its cards, on one page that needs no network.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap_fleet::cards::Gpu;
use warplap_fleet::roster::{Member, RosterClass};
use warplap_fleet::wants::Wanted;
use warplap_fleet::{cards, roster, wants};

use super::reach::reach;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept::write;
use crate::units;

const PAGE: &str = include_str!("../../../pages/fleet.html");
const SLOT: &str = "<!--BODY-->";

/// Arguments of `fleet report`.
#[derive(Args)]
pub(crate) struct FleetReport {
    /// The page
    #[arg(long, short, value_name = "FILE", default_value = "fleet.html")]
    output: PathBuf,
}

impl FleetReport {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut far = reach(None, root)?;
        let (classes, cards) = (far.ask(roster::classes)?, far.ask(cards::all)?);
        let (wanted, members) = (far.ask(|session| wants::all(session, None))?, far.ask(roster::members)?);
        let body = body(&far.title, &classes, &cards, &wanted, &members);
        write(&self.output, PAGE.replacen(SLOT, &body, 1).as_bytes(), "--output")?;
        let shown = json!({"report": self.output, "classes": classes.len(), "cards": cards.len()});
        match console.json {
            true => console.line(&shown)?,
            false => console.say(format_args!(
                "{} shows {} of {}",
                self.output.display(),
                units::some(classes.len(), "class", "classes"),
                far.title
            ))?,
        }
        Ok(Exit::Ok)
    }
}

fn body(title: &str, classes: &[RosterClass], cards: &[Gpu], wanted: &[Wanted], members: &[Member]) -> String {
    let open: Vec<&Wanted> = wanted.iter().filter(|w| w.editions == 0).collect();
    let (failed, waiting): (Vec<&Wanted>, Vec<&Wanted>) = open.iter().partition(|w| w.failed > 0);
    let keys = classes.iter().map(|c| c.keys).sum::<i64>();
    let off = cards.iter().filter(|c| !c.passes()).count();
    let headline = [
        units::some(keys as usize, "key", "keys") + " tuned",
        format!("{} wanted", open.len()),
        format!("{} failed", failed.len()),
        format!("{} of {} off their class", off, units::some(cards.len(), "card", "cards")),
    ];
    let mut page = format!("<h1>{}</h1>\n<p id=\"headline\">{}</p>\n", plain(title), plain(&headline.join(", ")));
    let counts = |c: &RosterClass| [c.keys, c.origins, c.wanted, c.failed].map(|n| ("n", n.to_string()));
    page += &table(
        ("Classes", "Devices of one kind share what was found on any of them."),
        &["device", ">keys", ">machines", ">wanted", ">failed"],
        classes.iter().map(|c| [vec![("", c.device.clone())], counts(c).to_vec()].concat()),
    );
    page += &table(
        (
            "Cards",
            "How far each is off the median of its class in what it computes or moves; beyond 5 % it ranks for nobody else.",
        ),
        &["device", "card", "machine", ">off its class", "reaches"],
        cards.iter().map(|c| {
            let reach: Vec<String> = c.ceilings.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect();
            let standing = if c.passes() { "n good" } else { "n bad" };
            let off = c.off.map_or("no other to compare with".into(), |off| format!("{:+.1} %", 100.0 * off));
            vec![
                ("", c.device.clone()),
                ("", c.id.clone()),
                ("", c.node.clone()),
                (standing, off),
                ("", reach.join(", ")),
            ]
        }),
    );
    page += &table(
        ("Failed", "What is left alone failed three times on two machines, and is tried again when its code changes."),
        &["problem", "device", ">times", "next", "why"],
        failed.iter().map(|w| {
            let next = if w.given_up { ("bad", "left alone") } else { ("", "tried again") };
            let why = w.why.clone().unwrap_or_else(|| "nobody said why".into());
            let times = ("n", w.failed.to_string());
            vec![("", w.problem.clone()), ("", w.device.clone()), times, (next.0, next.1.into()), ("", why)]
        }),
    );
    page += &table(
        ("Wanted", "Asked for and not tuned yet."),
        &["problem", "device", ">asked for"],
        waiting.iter().map(|w| vec![("", w.problem.clone()), ("", w.device.clone()), ("n", w.asked.to_string())]),
    );
    page += &table(
        ("Machines", "Who may publish, and has."),
        &["machine", "origin", "login", "standing", ">editions"],
        members.iter().map(|m| {
            let cells = [&m.node, &m.origin, &m.role, &m.standing].map(|text| ("", text.clone()));
            [cells.to_vec(), vec![("n", m.editions.to_string())]].concat()
        }),
    );
    page
}

/// A table under a heading; nothing where it has no rows. Columns whose head begins with `>` hold numbers.
fn table(
    (heading, about): (&str, &str),
    heads: &[&str],
    rows: impl Iterator<Item = Vec<(&'static str, String)>>,
) -> String {
    let cell = |(class, text): (&str, String)| format!("<td class=\"{class}\">{}</td>", plain(&text));
    let rows: Vec<String> =
        rows.map(|row| format!("<tr>{}</tr>", row.into_iter().map(cell).collect::<String>())).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = |head: &&str| match head.strip_prefix('>') {
        Some(head) => format!("<th class=\"n\">{head}</th>"),
        None => format!("<th>{head}</th>"),
    };
    let heads: String = heads.iter().map(head).collect();
    format!(
        "<h2>{heading}</h2>\n<p>{about}</p>\n<div class=\"wide\"><table>\n<tr>{heads}</tr>\n{}\n</table></div>\n",
        rows.join("\n")
    )
}

/// A text in which nothing is markup: names come from other machines.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_elsewhere_cannot_become_markup() {
        let why = Some("<script>alert(1)</script>".to_string());
        let failed = Wanted {
            device: "gpu\"onload=x".into(),
            op: "gemm".into(),
            key: String::new(),
            hash: String::new(),
            problem: "gemm:m=1&n=2".into(),
            asked: 1,
            failed: 3,
            why,
            given_up: true,
            editions: 0,
        };
        let page = body("here", &[], &[], &[failed], &[]);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;") && page.contains("m=1&amp;n=2"), "{page}");
        assert!(page.contains("1 failed") && page.contains("left alone") && !page.contains("Wanted</h2>"), "{page}");
    }
}
