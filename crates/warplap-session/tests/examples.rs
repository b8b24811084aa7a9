//! Every example runs, but for those that want a GPU.

macro_rules! examples {
    ($($name:ident = $path:literal),* $(,)?) => {
        $(
            #[path = $path]
            #[allow(dead_code)]
            mod $name;
        )*

        #[test]
        fn every_example_is_listed_here() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            let mut files: Vec<String> = std::fs::read_dir(folder)
                .expect("the folder of examples")
                .map(|e| format!("../examples/{}", e.expect("an entry").file_name().to_string_lossy()))
                .collect();
            // These want a GPU, and are no lessons.
            files.retain(|file| !file.contains("/cuda-"));
            files.sort();
            assert_eq!(files, [$($path),*]);
        }

        mod runs {
            $(
                #[test]
                fn $name() {
                    super::$name::main().expect("the example runs");
                }
            )*
        }
    };
}

examples! {
    first_product = "../examples/01-first-product.rs",
    prepared = "../examples/02-prepared.rs",
    own_operation = "../examples/03-own-operation.rs",
    side_by_side = "../examples/04-side-by-side.rs",
    closures = "../examples/05-closures.rs",
    graph = "../examples/06-graph.rs",
}
