//! What comes from outside the program, read with care: variables, files that a user names, texts, folders.

pub mod environment;
pub mod sanitize_text;
pub mod temp_dirs;
pub mod user_files;
