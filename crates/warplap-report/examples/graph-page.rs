//! Graphs that were decided, as JSON in a file; a page that draws them, into another.
//!
//! `cargo run -p warplap-report --example graph-page -- src/graph_page/llama.json page.html`

use std::error::Error;
use std::fs;

use warplap_report::graph_page::Page;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &paths[..] else { return Err("expected two paths: graphs as JSON, and the page to write".into()) };
    let page: Page = serde_json::from_str(&fs::read_to_string(from)?)?;
    fs::write(to, page.markup())?;
    Ok(())
}
