//! Every example runs. About 15 s.

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
    sparse_linear = "../examples/01-sparse-linear.rs",
    train = "../examples/02-train.rs",
    attention = "../examples/03-attention.rs",
}
