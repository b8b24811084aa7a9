//! One thing of each type: a type comes in; the one thing of it goes out, made when it is first asked for.

use std::any::Any;
use std::sync::OnceLock;

/// Things by their type. Finding one takes no lock: a list that only grows, and a program has few operations.
#[derive(Default)]
pub struct ByType {
    first: OnceLock<Box<Node>>,
}

struct Node {
    thing: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Node>>,
}

impl ByType {
    /// The thing of a type.
    #[inline]
    pub fn get<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let mut at = &self.first;
        loop {
            let node = at.get_or_init(|| Box::new(Node { thing: Box::new(make()), next: OnceLock::new() }));
            match node.thing.downcast_ref() {
                Some(thing) => return thing,
                None => at = &node.next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_thing_and_it_is_made_once() {
        let things = ByType::default();
        let first: *const u32 = things.get(|| 7u32);
        assert_eq!(*things.get(|| "text".to_string()), "text");
        let again = things.get(|| -> u32 { unreachable!("it is there") });
        assert!(std::ptr::eq(first, again) && *again == 7);
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same() {
        let things = ByType::default();
        let result: Vec<usize> = std::thread::scope(|scope| {
            let ask = |_| scope.spawn(|| std::ptr::from_ref(things.get(|| vec![1u8])) as usize);
            let asked: Vec<_> = (0..8).map(ask).collect();
            asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(result.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
