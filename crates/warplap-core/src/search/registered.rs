//! Searches of the user's own: a name and a maker come in; `named` finds them behind the searches there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::search::{Arm, Brief, NAMES, Search};

type Make = dyn Fn(Vec<Arm>, &Brief) -> Box<dyn Search> + Send + Sync;

static OWN: Mutex<Vec<(String, Arc<Make>)>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<(String, Arc<Make>)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a search of one's own to this process, to be asked for by its name in `Settings::search`. One of the same name
/// is replaced; the names there are stay what they are.
pub fn register(name: &str, make: impl Fn(Vec<Arm>, &Brief) -> Box<dyn Search> + Send + Sync + 'static) {
    if NAMES.contains(&name) {
        tracing::warn!("a search called '{name}' is there already: it stays what it is");
        return;
    }
    let mut own = own();
    own.retain(|(known, _)| known != name);
    own.push((name.to_string(), Arc::new(make)));
}

/// All names, in the order they are shown.
pub fn names() -> Vec<String> {
    NAMES.iter().map(ToString::to_string).chain(own().iter().map(|(name, _)| name.clone())).collect()
}

/// A search of the user's own.
pub(crate) fn made(name: &str, arms: Vec<Arm>, brief: &Brief) -> Option<Box<dyn Search>> {
    let make = own().iter().find(|(known, _)| known == name).map(|(_, make)| make.clone())?;
    Some(make(arms, brief))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::variant::Priority;
    use crate::search::named;
    use crate::search::tests::arm;

    #[test]
    fn a_search_of_ones_own_is_found_by_its_name_and_takes_nobodys_place() {
        assert!(named("backwards", Vec::new(), &Brief::default()).is_none());
        register("backwards", |mut arms, brief| {
            arms.reverse();
            named("exhaustive", arms, brief).expect("it is there")
        });
        let arms = || vec![arm("first", Priority::High, 1), arm("last", Priority::High, 1)];
        let mut search = named("backwards", arms(), &Brief::default()).unwrap();
        assert_eq!(search.ask(1)[0].variant, "last");
        register("random", |_, _| panic!("never asked"));
        assert!(named("random", arms(), &Brief::default()).is_some());
        assert!(names().contains(&"backwards".to_string()) && names().contains(&"auto".to_string()));
    }
}
