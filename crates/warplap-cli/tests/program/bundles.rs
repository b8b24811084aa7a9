//! Bundles between stores: signed, foreign, from pipes and into them.

use super::{Corner, SMALL};

#[test]
fn a_signed_bundle_goes_where_its_key_is_trusted() {
    let (there, here) = (Corner::new(), Corner::new());
    let path = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    let made = there.run(&["store", "keygen", &path("key")]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let key = made.stdout.trim();
    assert!(key.starts_with("warplap-key-ed25519:"), "{key}");
    assert_eq!(there.run(&["store", "keygen", &path("key")]).code, 2, "a key is never replaced");
    let signed = there.run(&["store", "export", &path("signed"), "--sign", &path("key")]);
    assert!(signed.code == 0 && signed.stdout.contains(key), "{}{}", signed.stdout, signed.stderr);
    assert_eq!(there.run(&["store", "export", &path("plain")]).code, 0);
    assert_eq!(there.run(&["store", "export", &path("x"), "--sign", &path("plain")]).code, 2);

    assert_eq!(here.run(&["store", "trust", "require"]).code, 0);
    for bundle in ["plain", "signed"] {
        let refused = here.run(&["store", "import", &path(bundle)]);
        assert!(refused.code == 2 && refused.stderr.contains("store trust"), "{}", refused.stderr);
    }
    assert_eq!(here.run(&["store", "trust", "add", "nonsense"]).code, 2);
    let added = here.run(&["store", "trust", "add", key, "--name", "the build farm"]);
    assert!(added.code == 0 && added.stdout.contains("the build farm"), "{}", added.stderr);
    let taken = here.run(&["store", "import", &path("signed")]);
    assert!(taken.code == 0 && taken.stdout.contains("1 added"), "{}{}", taken.stdout, taken.stderr);
    assert_eq!(here.run(&["store", "import", &path("plain")]).code, 2);
    let listed = here.run(&["store", "trust", "list", "--json"]).lines().remove(0);
    assert_eq!((listed["required"].as_bool(), listed["keys"][key].as_str()), (Some(true), Some("the build farm")));
    assert_eq!(here.run(&["store", "trust", "remove", key]).code, 0);
    assert_eq!(here.run(&["store", "trust", "remove", key]).code, 1);
    assert_eq!(here.run(&["store", "import", &path("signed")]).code, 2);
    assert_eq!(here.run(&["store", "trust", "require", "--off"]).code, 0);
    assert_eq!(here.run(&["store", "import", &path("plain")]).code, 0);
}
