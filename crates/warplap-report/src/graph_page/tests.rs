//! Random graphs, and what must be on a page.

use std::time::Instant;

use proptest::prelude::*;

use super::drawing::placed;
use super::layout::Rect;
use super::{Cover, Decided, Kind, Lane, Node, Page, Unmeasured};

fn node(name: &str, reads: &[usize], cover: Option<usize>) -> Node {
    Node { name: name.to_string(), does: "add".to_string(), reads: reads.to_vec(), cover, ..Node::default() }
}

fn graph(nodes: Vec<Node>, covers: usize) -> Decided {
    let covers = (0..covers).map(|i| Cover { name: format!("cover{i}") }).collect();
    Decided { nodes, covers, ..Decided::default() }
}

fn markup(graph: Decided) -> String {
    Page { title: "A page".to_string(), graphs: vec![graph] }.markup()
}

fn meet(a: &Rect, b: &Rect) -> bool {
    let near = 0.01;
    a.x + a.wide > b.x + near && b.x + b.wide > a.x + near && a.y + a.high > b.y + near && b.y + b.high > a.y + near
}

fn holds(outer: &Rect, inner: &Rect) -> bool {
    inner.x >= outer.x
        && inner.y >= outer.y
        && inner.x + inner.wide <= outer.x + outer.wide
        && inner.y + inner.high <= outer.y + outer.high
}

/// A graph in which everyone reads some of those before it, and neighbours in the list may be covered together: any such
/// covers can be computed in order.
fn graphs(most: usize) -> impl Strategy<Value = Decided> {
    let one = (prop::collection::vec(0.0..1.0f64, 0..4), 0..3usize, any::<bool>(), "[a-z_]{0,24}");
    prop::collection::vec(one, 0..most).prop_map(|drawn| {
        let mut covers = 0;
        let mut nodes: Vec<Node> = Vec::new();
        for (i, (reads, cover, goes_on, name)) in drawn.into_iter().enumerate() {
            let reads: Vec<usize> = reads.into_iter().filter(|_| i > 0).map(|at| (at * i as f64) as usize).collect();
            let before = nodes.last().and_then(|node| node.cover).filter(|_| goes_on);
            let cover = before.or_else(|| {
                (cover == 0).then(|| {
                    covers += 1;
                    covers - 1
                })
            });
            let kind = if reads.is_empty() { Kind::Input } else { Kind::Work };
            nodes.push(Node { kind, is_seen: i % 5 == 4, ..node(&format!("n{i}{name}"), &reads, cover) });
        }
        graph(nodes, covers)
    })
}

/// Everything has its place: boxes apart from each other, nodes in their covers and nowhere else, ways between boxes.
fn is_tidy(graph: &Decided) {
    let result = placed(graph);
    let page = Rect { x: 0.0, y: 0.0, wide: result.size.0, high: result.size.1 };
    for (i, a) in result.nodes.iter().enumerate() {
        assert!(a.x.is_finite() && a.y.is_finite() && holds(&page, a), "node {i}: {a:?} in {page:?}");
        for (j, b) in result.nodes.iter().enumerate().skip(i + 1) {
            assert!(!meet(a, b), "nodes {i} and {j}: {a:?} {b:?}");
        }
        for (c, cover) in result.covers.iter().enumerate() {
            let Some(cover) = cover else { continue };
            let is_in = graph.cover(i) == Some(c);
            assert!(if is_in { holds(cover, a) } else { !meet(cover, a) }, "node {i}, cover {c}: {a:?} {cover:?}");
        }
    }
    for (i, a) in result.covers.iter().enumerate() {
        for b in result.covers.iter().skip(i + 1) {
            assert!(!matches!((a, b), (Some(a), Some(b)) if meet(a, b)), "{a:?} {b:?}");
        }
    }
    for edge in &result.edges {
        let (from, to) = (result.nodes[edge.from], result.nodes[edge.to]);
        let (first, last) = (edge.points[0], edge.points[edge.points.len() - 1]);
        assert!((first.1 - from.y - from.high).abs() < 0.01 && (last.1 - to.y).abs() < 0.01, "{edge:?}");
        assert!(edge.points.windows(2).all(|pair| pair[0].1 <= pair[1].1 + 0.01), "it goes down: {edge:?}");
        for (i, rect) in result.nodes.iter().enumerate().filter(|(i, _)| *i != edge.from && *i != edge.to) {
            for pair in edge.points.windows(2) {
                let (x, wide) = (pair[0].0.min(pair[1].0), (pair[0].0 - pair[1].0).abs());
                let way = Rect { x, y: pair[0].1, wide, high: pair[1].1 - pair[0].1 };
                assert!(!meet(rect, &way), "{} reads {} across {i}", edge.to, edge.from);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn nothing_overlaps(graph in graphs(28)) {
        is_tidy(&graph);
    }

    #[test]
    fn whatever_is_given_is_drawn(
        drawn in prop::collection::vec((prop::collection::vec(0..20usize, 0..5), prop::option::of(0..6usize)), 0..16),
        covers in 0..4usize,
    ) {
        let nodes = drawn.iter().enumerate().map(|(i, (reads, cover))| node(&format!("n{i}"), reads, *cover)).collect();
        let text = markup(graph(nodes, covers));
        prop_assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}

#[test]
fn every_node_edge_cover_and_lane_is_on_the_page() {
    let mut graph: Decided = llama();
    graph.unmeasured.push(Unmeasured { name: "planted".into(), us: Some(77.7), why: String::new() });
    is_tidy(&graph);
    let page = markup(graph.clone());
    let mut edges = 0;
    for (i, node) in graph.nodes.iter().enumerate() {
        assert!(page.contains(&format!("<title>{}: ", node.name)), "{}", node.name);
        for read in graph.reads(i) {
            edges += 1;
            assert!(page.contains(&format!("<title>{} reads {}</title>", node.name, graph.nodes[read].name)));
        }
    }
    assert_eq!(page.matches("class=\"edge\"").count(), edges);
    assert_eq!(page.matches("<g class=\"cover ").count(), graph.covers.len());
    for cover in &graph.covers {
        assert!(page.contains(&format!("one launch: {}<", cover.name)));
    }
    for lane in &graph.lanes {
        assert!(page.contains(&format!(">{}</span>", lane.name)), "{}", lane.name);
    }
    for said in ["77.7 µs", "1.00×", "slower than the winner by", "within noise", "no right answer", &graph.how] {
        assert!(page.contains(said), "{said}");
    }
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"), "it loads nothing");
}

#[test]
fn names_cannot_become_markup() {
    let evil = "</title><script>alert('\"&')</script>";
    let lane = Lane { name: evil.into(), us: Some(1.0), why: evil.into(), is_taken: true, ..Lane::default() };
    let page = Page {
        title: evil.into(),
        graphs: vec![
            Decided {
                title: evil.into(),
                key: evil.into(),
                how: evil.into(),
                plain: evil.into(),
                nodes: vec![Node { does: evil.into(), ..node(evil, &[], Some(0)) }, node(evil, &[0], None)],
                covers: vec![Cover { name: evil.into() }],
                lanes: vec![lane],
                unmeasured: vec![Unmeasured { name: evil.into(), us: None, why: evil.into() }],
            };
            2
        ],
    };
    let text = page.markup();
    assert!(!text.contains("<script") && !text.contains("alert('"), "{text}");
}

#[test]
fn an_empty_page_and_empty_graphs_are_pages_too() {
    assert!(Page::default().markup().contains("No graph was decided yet"));
    let text = markup(Decided { how: "the mode is off".into(), ..Decided::default() });
    assert!(text.contains("The graph has no nodes") && text.contains("the mode is off") && !text.contains("<svg"));
    is_tidy(&graph(vec![node("alone", &[], None)], 1));
}

#[test]
fn covers_that_wait_for_each_other_are_drawn_all_the_same() {
    let crossed = vec![
        node("a", &[], Some(0)),
        node("b", &[], Some(1)),
        node("c", &[0], Some(1)),
        node("d", &[1, 9, 3], Some(0)),
        node("e", &[2], Some(7)),
    ];
    assert_eq!(markup(graph(crossed, 2)).matches("class=\"edge\"").count(), 3);
}

#[test]
fn two_hundred_nodes_take_no_time() {
    let nodes = (0..200usize).map(|i| {
        let reads: Vec<usize> = (1..=3).filter_map(|k| i.checked_sub(k * k * k)).collect();
        node(&format!("node_{i}"), &reads, (i % 7 < 3).then_some(i / 7))
    });
    let graph = graph(nodes.collect(), 29);
    let began = Instant::now();
    assert!(markup(graph).len() > 10_000);
    assert!(began.elapsed().as_secs_f64() < 5.0, "{:?}", began.elapsed());
}

#[test]
fn json_with_unknown_words_is_refused() {
    assert!(serde_json::from_str::<Page>(r#"{"grafs": []}"#).is_err());
    let page = Page { title: "t".into(), graphs: vec![llama()] };
    assert_eq!(serde_json::from_str::<Page>(&serde_json::to_string(&page).unwrap()).unwrap(), page);
}

/// A block of Llama's kind with a few covers.
fn llama() -> Decided {
    let page: Page = serde_json::from_str(include_str!("llama.json")).unwrap();
    page.graphs.into_iter().next().unwrap()
}
