//! What every choice took, as bars: lanes come in; tables with times, how many times the best that is, and why each one
//! lost or left, go out.

use std::fmt::Write as _;

use super::markup::escaped;
use super::{Decided, Lane};

/// Bars end at so many times the best: one that is far behind would make all others look alike.
const LONGEST: f64 = 2.5;

/// Choices that did not race are shown up to so many.
const OTHERS: usize = 12;

/// A number that is one: neither endless nor below nothing.
fn real(number: Option<f64>) -> Option<f64> {
    number.filter(|n| n.is_finite() && *n > 0.0)
}

/// Lanes with how many times the best they take, fastest first, and those that left behind them.
fn ranked(graph: &Decided) -> Vec<(Option<f64>, &Lane)> {
    let best = graph.lanes.iter().filter_map(|lane| real(lane.us)).min_by(f64::total_cmp);
    let times = |lane: &Lane| match (real(lane.us), best) {
        (Some(us), Some(best)) => Some(us / best),
        _ => real(lane.times),
    };
    let mut ranked: Vec<(Option<f64>, &Lane)> = graph.lanes.iter().map(|lane| (times(lane), lane)).collect();
    // Of two that took the same the one that runs is in front.
    ranked.sort_by(|(a, one), (b, other)| {
        let (a, b) = (a.unwrap_or(f64::INFINITY), b.unwrap_or(f64::INFINITY));
        a.total_cmp(&b).then(other.is_taken.cmp(&one.is_taken))
    });
    ranked
}

/// What was taken, in a sentence.
pub(super) fn headline(graph: &Decided) -> String {
    let Some(taken) = graph.lanes.iter().find(|lane| lane.is_taken) else { return String::new() };
    let time = real(taken.us).map_or(String::new(), |us| format!(", {} µs", micros(us, decimals(us))));
    format!("<strong>{}</strong> is taken{time}", escaped(&taken.name))
}

/// The race.
pub(super) fn page_rows(graph: &Decided) -> String {
    if graph.lanes.is_empty() {
        return String::new();
    }
    let ranked = ranked(graph);
    let taken = ranked.iter().find(|(_, lane)| lane.is_taken).and_then(|(times, _)| *times);
    let longest = ranked.iter().filter_map(|(times, _)| *times).fold(1.0, f64::max).min(LONGEST);
    let places = graph.lanes.iter().filter_map(|lane| real(lane.us)).min_by(f64::total_cmp).map_or(1, decimals);
    let is_predicted = graph.lanes.iter().all(|lane| lane.is_predicted);
    let mut out = table(if is_predicted { "As a whole, told by the parts" } else { "Raced as a whole" }, true);
    for (times, lane) in &ranked {
        let class = if lane.is_taken { "lane taken" } else { "lane" };
        let bar = times.map_or(String::new(), |times| bar(times, longest, lane.is_predicted));
        let us = real(lane.us).map_or(String::new(), |us| micros(us, places));
        let times_text = times.map_or(String::new(), |times| format!("{times:.2}×"));
        row(&mut out, class, &lane.name, &bar, &[(&us, " µs"), (&times_text, "")], &why(lane, *times, taken));
    }
    out.push_str("</tbody></table>\n");
    out
}

/// Choices that did not race, by what their parts take.
pub(super) fn unmeasured(graph: &Decided) -> String {
    let mut all: Vec<_> = graph.unmeasured.iter().map(|one| (real(one.us), one)).collect();
    if all.is_empty() {
        return String::new();
    }
    all.sort_by(|(a, _), (b, _)| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    let (least, most) = (all[0].0.unwrap_or(1.0), all.iter().filter_map(|(us, _)| *us).fold(0.0, f64::max));
    let places = decimals(least);
    let mut out = table("By their parts, not raced", false);
    for (us, one) in all.iter().take(OTHERS) {
        let bar = us.map_or(String::new(), |us| bar(us / least, (most / least).min(LONGEST), true));
        let text = us.map_or(String::new(), |us| micros(us, places));
        let why = if one.why.is_empty() { "not raced: others were ahead by their parts" } else { &one.why };
        row(&mut out, "lane", &one.name, &bar, &[(&text, " µs")], &escaped(why));
    }
    out.push_str("</tbody></table>\n");
    if all.len() > OTHERS {
        let _ = writeln!(out, "<p class=\"more\">and {} more</p>", all.len() - OTHERS);
    }
    out
}

/// Why a lane lost or left, or that it did not.
fn why(lane: &Lane, times: Option<f64>, taken: Option<f64>) -> String {
    let said = escaped(&lane.why);
    let message = match (times, taken) {
        _ if lane.is_taken => "taken".to_string(),
        (None, _) if said.is_empty() => "no time is known".to_string(),
        (Some(_), _) if lane.is_tie => "within noise: no difference was seen".to_string(),
        (Some(times), Some(taken)) if times > taken => format!("slower than the winner by {}", share(times / taken)),
        (Some(times), Some(taken)) if times < taken => {
            format!("ahead by {}, which was not enough", share(taken / times))
        }
        (Some(_), Some(_)) => "as fast as the winner".to_string(),
        _ => String::new(),
    };
    let both = [message, said].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    if lane.is_predicted && !lane.is_taken { format!("{both}; not raced") } else { both }
}

/// A ratio as what it is more than one: a share, or so many times where it is twice and more.
fn share(ratio: f64) -> String {
    let more = (ratio - 1.0) * 100.0;
    match ratio {
        r if r >= 2.0 => format!("{r:.1}×"),
        _ if more >= 9.95 => format!("{more:.0} %"),
        _ if more >= 0.05 => format!("{more:.1} %"),
        _ => "less than 0.1 %".to_string(),
    }
}

/// As many digits behind the point as say something.
fn decimals(us: f64) -> usize {
    if us < 10.0 { 2 } else { 1 }
}

/// Microseconds with their thousands apart.
fn micros(us: f64, places: usize) -> String {
    let text = format!("{us:.places$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if rest.is_empty() { out } else { format!("{out}.{rest}") }
}

fn bar(times: f64, longest: f64, is_predicted: bool) -> String {
    let wide = 100.0 * times.min(longest) / longest;
    let class = match (is_predicted, times > longest * 1.0001) {
        (true, true) => "bar told cut",
        (true, false) => "bar told",
        (false, true) => "bar cut",
        (false, false) => "bar",
    };
    format!("<span class=\"{class}\" style=\"width:{wide:.1}%\"></span>")
}

fn table(head: &str, has_times: bool) -> String {
    let times = if has_times { "<th scope=\"col\" role=\"columnheader\">times the best</th>" } else { "" };
    let class = if has_times { "lanes" } else { "lanes others" };
    format!(
        "<table class=\"{class}\" role=\"table\"><caption>{head}</caption>\n<thead role=\"rowgroup\"><tr role=\"row\">\
         <th scope=\"col\" role=\"columnheader\">choice</th><th scope=\"col\" role=\"columnheader\">time</th>{times}\
         <th scope=\"col\" role=\"columnheader\">why</th></tr></thead>\n<tbody role=\"rowgroup\">\n"
    )
}

/// A row: its numbers with their units, beside a bar that says the same.
fn row(out: &mut String, class: &str, name: &str, bar: &str, numbers: &[(&str, &str)], why: &str) {
    let _ = write!(
        out,
        "<tr class=\"{class}\" role=\"row\"><th scope=\"row\" role=\"rowheader\"><span class=\"name\">{}</span>\
         <span class=\"track\" aria-hidden=\"true\">{bar}</span></th>",
        escaped(name)
    );
    for (number, unit) in numbers {
        let unit = if number.is_empty() { "" } else { unit };
        let _ = write!(out, "<td class=\"number\" role=\"cell\">{number}{unit}</td>");
    }
    let _ = writeln!(out, "<td class=\"why\" role=\"cell\">{why}</td></tr>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_people_read_them() {
        assert_eq!(micros(1_208.34, 1), "1\u{202f}208.3");
        assert_eq!(micros(8.126, decimals(8.126)), "8.13");
        assert_eq!([1.0004, 1.012, 1.15, 3.2].map(share), ["less than 0.1 %", "1.2 %", "15 %", "3.2×"]);
    }

    #[test]
    fn everyone_is_told_why() {
        let lane = |name: &str, us: Option<f64>| Lane { name: name.into(), us, ..Lane::default() };
        let graph = Decided {
            lanes: vec![
                Lane { why: "wrong answer".into(), ..lane("d", None) },
                lane("c", Some(20.0)),
                Lane { is_tie: true, ..lane("b", Some(9.9)) },
                Lane { is_taken: true, ..lane("a", Some(10.0)) },
                lane("e", Some(f64::NAN)),
            ],
            ..Decided::default()
        };
        let taken = ranked(&graph).iter().find(|(_, lane)| lane.is_taken).and_then(|(times, _)| *times);
        let message: Vec<_> =
            ranked(&graph).into_iter().map(|(times, l)| (l.name.as_str(), why(l, times, taken))).collect();
        let expected = [
            ("b", "within noise: no difference was seen"),
            ("a", "taken"),
            ("c", "slower than the winner by 2.0×"),
            ("d", "wrong answer"),
            ("e", "no time is known"),
        ];
        assert_eq!(message.iter().map(|(n, w)| (*n, w.as_str())).collect::<Vec<_>>(), expected);
        assert!(headline(&graph).contains("a</strong> is taken, 10.0 µs"));
    }
}
