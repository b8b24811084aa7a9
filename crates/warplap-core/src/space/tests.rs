use super::*;
use proptest::prelude::*;

fn tiles() -> Space {
    Space::single()
        .axis(Axis::powers_of_two("mc", 8, 64))
        .axis(Axis::powers_of_two("nc", 8, 64))
        .axis(Axis::switch("pack"))
        .rule(Rule::on("mc * nc <= 512", &["mc", "nc"], |c| c.int("mc").unwrap_or(0) * c.int("nc").unwrap_or(0) <= 512))
}

#[test]
fn a_rule_of_twenty_thousand_terms_is_not_said_whole() {
    let space = || Space::single().axis(Axis::ints("x", 0..4));
    let said = |rule: &str| match space().constrain(rule) {
        Ok(space) => space.check().unwrap_err().to_string(),
        Err(why) => why.to_string(),
    };
    for terms in [30, 20_000] {
        for last in ["x > y", "x > 9"] {
            let long = format!("{} {last}", "x > 0 and ".repeat(terms));
            assert!(said(&long).len() < 1000, "{terms} {last}: {} bytes", said(&long).len());
        }
    }
    let long = format!("{} x > y", "x > 0 and ".repeat(30));
    assert!(said(&long).contains("no axis 'y'") && said(&long).ends_with('^'), "{}", said(&long));
}

#[test]
fn a_space_refuses_what_it_does_not_hold() {
    let space = tiles();
    let good = space.default_config().unwrap();
    assert!(space.contains(&good));
    assert!(!space.contains(&good.clone().with("mc", 9)));
    assert!(!space.contains(&good.clone().with("extra", 1)));
    assert!(!space.contains(&good.with("mc", 64).with("nc", 64)));
    assert!(!space.contains(&Config::new()));
    assert!(Space::single().contains(&Config::new()));
    assert_eq!(Space::single().count(), 1);
}

#[test]
fn neighbours_are_legal_and_one_axis_away() {
    let space = tiles();
    let here = space.default_config().unwrap();
    let (near, far) = (space.neighbours(&here), space.hamming(&here));
    assert!(near.iter().all(|c| far.contains(c)) && far.len() > near.len());
    for other in far {
        assert!(space.contains(&other));
        assert_eq!(here.0.iter().filter(|(name, value)| other.get(name) != Some(value)).count(), 1);
    }
}

#[test]
fn derived_values_are_part_of_every_config_and_rules_may_name_them() {
    let space = Space::single()
        .axis(Axis::ints("x", [1, 2, 4, 8]))
        .axis(Axis::ints("y", [1, 2, 4, 8]))
        .derive("threads", "x * y")
        .unwrap()
        .derive("warps", "threads / 4")
        .unwrap()
        .constrain("threads <= 16 and warps >= 1")
        .unwrap();
    let configs = space.configs();
    assert_eq!(configs.len(), 10);
    for config in &configs {
        assert_eq!(config.int("threads"), Some(config.int("x").unwrap() * config.int("y").unwrap()));
        assert!(space.contains(config));
        assert!(!space.contains(&config.clone().with("threads", 1)));
    }
    assert!(matches!(space.derive("x", "1"), Err(SpaceError::Twice(_))));
}

#[test]
fn permutations_step_by_one_swap() {
    let axis = Axis::permutations("order", &["i", "j", "k"]);
    assert_eq!(axis.values().len(), 6);
    assert_eq!(axis.default_value(), Some(&Value::from("i_j_k")));
    let near: Vec<String> = axis.neighbours(&Value::from("i_j_k")).into_iter().map(ToString::to_string).collect();
    assert_eq!(near.len(), 2);
    assert!(near.contains(&"j_i_k".to_string()) && near.contains(&"i_k_j".to_string()), "{near:?}");
    assert_eq!(Axis::permutations("one", &["i"]).values().len(), 1);
}

#[test]
fn bad_spaces_are_named() {
    let base = || Space::single().axis(Axis::ints("a", 1..=4)).axis(Axis::ints("b", 1..=4));
    let unknown = base().constrain("a * c <= 4").unwrap_err().to_string();
    assert!(unknown.contains("no axis 'c': expected one of a, b") && unknown.contains("column 5"), "{unknown}");
    let never = base().constrain("b > 1").unwrap().constrain("a * b > 99").unwrap().check().unwrap_err();
    assert_eq!(never, SpaceError::NeverTrue("a * b > 99".into()));
    let both = base().constrain("a > 2").unwrap().constrain("a < 3").unwrap().check().unwrap_err();
    assert_eq!(both, SpaceError::Contradiction("a < 3".into()));
    assert_eq!(base().axis(Axis::ints("c", [])).check(), Err(SpaceError::NoValues("c".into())));
    assert_eq!(base().axis(Axis::ints("a", [1])).check(), Err(SpaceError::Twice("a".into())));
    assert_eq!(base().axis(Axis::ints("c", 0..70_000)).check(), Err(SpaceError::TooManyValues("c".into())));
    assert_eq!(base().check(), Ok(()));
}

#[test]
fn independent_groups_multiply_instead_of_repeating() {
    let mut space = Space::single();
    for i in 0..25 {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        space = space.axis(Axis::ints(&a, 0..8)).axis(Axis::ints(&b, 0..8));
        space = space.constrain(&format!("{a} < {b}")).unwrap();
    }
    assert_eq!(space.count(), 28u128.pow(25));
}

#[test]
fn a_count_beyond_128_bits_is_an_error() {
    let mut space = Space::single();
    for i in 0..40 {
        space = space.axis(Axis::ints(&format!("a{i}"), 0..16));
    }
    assert_eq!(space.check(), Err(SpaceError::TooLarge));
}

#[test]
fn sampling_is_uniform() {
    let space = tiles();
    let count = space.count() as usize;
    let mut rng = fastrand::Rng::with_seed(7);
    let (draws, mut seen) = (count * 1000, std::collections::HashMap::<Config, u32>::new());
    for _ in 0..draws {
        *seen.entry(space.sample(&mut rng).unwrap()).or_default() += 1;
    }
    assert_eq!(seen.len(), count);
    let chi2: f64 = seen.values().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
    // 19 degrees of freedom: 43.8 is passed once in a thousand.
    assert!(chi2 < 43.8, "{chi2}");
}

#[test]
fn points_given_one_by_one_are_the_space() {
    let axes = || vec![Axis::ints("a", 0..3), Axis::ints("one", [5]), Axis::ints("b", 0..3)];
    let points = vec![vec![2, 0, 1], vec![0, 0, 0], vec![2, 0, 2], vec![0, 0, 0]];
    let space = Space::of_points(axes(), points).unwrap();
    assert_eq!(space.count(), 3);
    assert!(space.contains(&Config::new().with("a", 2).with("b", 1).with("one", 5)));
    assert!(!space.contains(&Config::new().with("a", 1).with("b", 1).with("one", 5)));
    assert_eq!(Space::of_points(axes(), Vec::new()).unwrap().count(), 0);
}

/// Rules over four small axes, some of them never true, some with divisions by zero.
const RULES: [&str; 14] = [
    "a * b <= 6",
    "a % b == 0",
    "c / b >= 1",
    "a + b + c + d < 9",
    "not (a == 1 and d > 0)",
    "a // c == b or d == 0",
    "1 < b * c <= 6",
    "d in (0, 2)",
    "a <= b <= c",
    "max(a, d) != 3",
    "(a - b) * (c - d) >= 0",
    "a or d",
    "b == 2 if d else c > 1",
    "c % (a / b) == 0",
];

proptest! {
    #[test]
    fn enumeration_equals_filtering_the_product(
        sizes in prop::array::uniform4(1i64..5),
        low in prop::array::uniform4(-1i64..3),
        picked in prop::collection::vec(0..RULES.len(), 0..4),
        function in any::<bool>(),
    ) {
        let names = ["a", "b", "c", "d"];
        let mut space = Space::single();
        for i in 0..4 {
            space = space.axis(Axis::ints(names[i], low[i]..low[i] + sizes[i]));
        }
        for rule in &picked {
            space = space.constrain(RULES[*rule]).unwrap();
        }
        if function {
            space = space.rule(Rule::on("a != c", &["a", "c"], |c| c.int("a") != c.int("c")));
        }
        let mut filtered = Vec::new();
        for a in low[0]..low[0] + sizes[0] {
            for b in low[1]..low[1] + sizes[1] {
                for c in low[2]..low[2] + sizes[2] {
                    for d in low[3]..low[3] + sizes[3] {
                        let config = Config::new().with("a", a).with("b", b).with("c", c).with("d", d);
                        if space.rules().iter().all(|r| r.holds(&config)) {
                            filtered.push(config);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(space.count(), filtered.len() as u128);
        prop_assert_eq!(&space.configs(), &filtered);
        let rows = space.rows().unwrap();
        for index in 0..space.count() {
            let config = space.at(index).unwrap();
            prop_assert_eq!(space.index(&config), Some(index));
            prop_assert_eq!(space.config(&rows.point(index as usize)), config);
        }
        prop_assert_eq!(space.at(space.count()), None);
    }
}

#[test]
fn settings_of_another_space_become_the_nearest_legal_ones() {
    let space = |tiles: &[i64], most: i64| {
        Space::single()
            .axis(Axis::ints("tile", tiles.iter().copied()))
            .axis(Axis::ints("stages", [2, 3, 6]))
            .axis(Axis::choices("order", &["rows", "columns"]))
            .rule(Rule::on("room", &["tile", "stages"], move |c| {
                c.int("tile").is_some_and(|t| c.int("stages").is_some_and(|s| t * s <= most))
            }))
    };
    let set = |tile: i64, stages: i64, order: &str| {
        Config::new().with("tile", tile).with("stages", stages).with("order", order)
    };
    let wide = space(&[16, 32, 40], 1000);
    let own = set(40, 6, "columns");
    assert_eq!(wide.nearest(&own), Some(own.clone()), "what is legal stays");
    assert_eq!(space(&[16, 32, 56], 1000).nearest(&own), Some(set(32, 6, "columns")), "the nearer by its ratio");
    assert_eq!(space(&[20, 80], 1000).nearest(&own), Some(set(20, 6, "columns")), "of two as near the smaller one");
    let room = space(&[16, 32, 56], 100).nearest(&own);
    assert_eq!(room, Some(set(32, 3, "columns")), "as far as the rules let");
    let more = Config::new().with("tile", 32).with("order", "diagonal").with("warps", 4);
    assert_eq!(wide.nearest(&more), Some(set(32, 2, "rows")), "what is not known here is left out");
    assert_eq!(space(&[900], 1000).nearest(&own), None, "nothing is legal");
}
