//! Compiled kernels of winners travel with a signature, and stay away without one.

use std::collections::BTreeSet;
use std::path::Path;

use warplap_core::store::{SecretKey, Store};
use warplap_fleet::{KEY_FILE, follow};
use warplap_worker::artifact::{Artifact, Artifacts, digest};

use crate::server::Server;
use crate::sharing::{machine, now};
use crate::store_support::{device, edition, key};

/// What a machine has after it pulled: kernels that came, and those that were left.
fn pull(server: &Server, database: &str, folder: &Path, near: &Store) -> (usize, usize) {
    let kept = Artifacts::open(&folder.join("near")).unwrap();
    let mut session = server.session("owner", database);
    follow::pull(&mut session, near, "", Some(&device(1).slug()), false, Some(&kept)).unwrap().kernels
}

#[test]
fn a_kernel_comes_from_a_key_that_is_trusted_and_from_nobody_else() {
    let (server, folders) = (Server::shared(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
    let database = server.database();
    let [first, second, third] = folders.each_ref().map(|f| machine(&server, &database, "owner", f.path()));
    let (name, artifact) = (digest(["a kernel"]), Artifact { image: vec![7; 3000], report: 5u32 });
    Artifacts::open(&folders[0].path().join("near")).unwrap().put(&name, &artifact).unwrap();
    let mut won = edition(first.id(), now(), 1);
    won.artifacts = BTreeSet::from([name.clone(), digest(["one that is not kept any more"])]);
    first.put(&key(1), &device(1), won, "matmul m=1").unwrap();
    first.publish();

    assert_eq!(pull(&server, &database, folders[1].path(), &second), (0, 2), "nobody is trusted yet");
    let signer = SecretKey::read(&folders[0].path().join("near").join(KEY_FILE)).unwrap().public();
    second.trust(|trusted| trusted.add(&signer, "first")).unwrap();
    assert_eq!(pull(&server, &database, folders[1].path(), &second), (1, 1), "also what was pulled before");
    let kept = Artifacts::open(&folders[1].path().join("near")).unwrap();
    assert_eq!(kept.get::<u32>(&name), Some(artifact));
    assert_eq!(pull(&server, &database, folders[1].path(), &second), (0, 1), "what is here does not come again");

    // Whoever owns the database changes one byte.
    server.session("owner", &database).run("update warplap.artifact set body = set_byte(body, 2000, 8)").unwrap();
    third.trust(|trusted| trusted.add(&signer, "first")).unwrap();
    assert_eq!(pull(&server, &database, folders[2].path(), &third), (0, 2), "it is not what was signed");
}
