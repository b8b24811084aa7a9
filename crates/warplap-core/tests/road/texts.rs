//! Texts from outside: keys are unique, parsers never panic.

use proptest::prelude::*;
use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::key::Key;
use warplap_core::measure::Policy;
use warplap_core::op::Op;
use warplap_core::problem::FieldReader;
use warplap_core::settings::Mode;
use warplap_core::space::{Config, Value};

use crate::fake::{Scale, ScaleProblem};

fn problems() -> impl Strategy<Value = ScaleProblem> {
    // Labels made of the letters that mean something to the form, and of anything.
    let label = prop_oneof!["[a-c=,;:% ]{0,6}", "\\PC{0,6}", "[ \\t\\n\u{a0}\u{3000}x]{0,4}"];
    (1u64..5, 1u64..3, 0usize..5, label).prop_map(|(n, step, d, label)| ScaleProblem {
        n,
        step,
        dtype: DType::ALL[d],
        label,
    })
}

fn key(p: &ScaleProblem) -> Key {
    Scale::key(p, &Bucket::Exact, Policy::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_problems_never_share_a_key(a in problems(), b in problems()) {
        prop_assert_eq!(a == b, key(&a) == key(&b));
        prop_assert_eq!(a == b, key(&a).hash() == key(&b).hash());
    }

    #[test]
    fn two_buckets_of_different_names_never_share_a_key(a in "[a-c,;=%]{0,5}", b in "[a-c,;=%]{0,5}", p in problems()) {
        let own = |name: &str| Bucket::Own(name.into(), std::sync::Arc::new(|_, s| s));
        let key = |name: &str| Scale::key(&p, &own(name), Policy::default());
        prop_assert_eq!(a == b, key(&a) == key(&b));
    }

    #[test]
    fn a_problem_reads_back_what_it_prints(p in problems()) {
        prop_assert_eq!(Scale::parse(&Scale::text(&p)), Ok(p));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,60}", fields in "[a-z=,;:%0-9. -]{0,60}") {
        for text in [&text, &fields] {
            let _ = Config::parse(text);
            let _ = Scale::parse(text);
            let _ = text.parse::<Mode>();
            let _ = text.parse::<DType>();
            if let Ok(mut reader) = FieldReader::new(text) {
                let _ = reader.size("n");
                let _ = reader.size_or("m", 1);
                let _ = reader.number_or("density", 0.0, 1.0, 0.5);
                let _ = reader.word_or::<DType>("dtype", "a type", DType::F32);
                let _ = reader.has("x");
                let _ = reader.finish();
            }
        }
    }

    #[test]
    fn a_config_of_plain_words_reads_back_what_it_prints(
        axes in prop::collection::btree_map("[a-z_]{1,6}", prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<bool>().prop_map(Value::Bool),
            "[a-z][a-z0-9_]{0,8}".prop_filter("a switch", |t| t != "true" && t != "false").prop_map(Value::Text),
        ], 0..6)
    ) {
        let config = Config(axes);
        prop_assert_eq!(Config::parse(&config.to_string()), Ok(config));
    }
}
