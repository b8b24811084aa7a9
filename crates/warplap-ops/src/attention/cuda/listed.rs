//! Lists of blocks: where a mask is of squares, kernels of tiles list the blocks they visit before they visit them. What
//! comes in is how large blocks are and how many there may be; what goes out is the room and the facts a list takes.

use warplap_core::rejection::Rejection;

use super::plan::square_fact;
use crate::attention::AttentionProblem;

/// The most blocks a kernel lists: two bytes of shared memory each, beside what its tiles take.
const MOST_LISTED: u64 = 16384;

/// What a kernel needs that lists the blocks it visits, where the mask is of squares.
#[derive(Default)]
pub(crate) struct Listed {
    /// Static shared memory.
    pub(crate) bytes: u64,
    /// Facts it is compiled with.
    pub(crate) facts: Vec<(&'static str, i64)>,
}

/// What it needs for blocks of so many queries by so many keys, of which there are so many at the most. A block must not
/// lie in two squares.
pub(crate) fn listed(p: &AttentionProblem, block: [u64; 2], most: u64) -> Result<Listed, Rejection> {
    let Some(tiles) = p.mask.tiles() else { return Ok(Listed::default()) };
    if block.into_iter().any(|side| !tiles.side.is_multiple_of(side)) {
        let reason = format!("a block of {} by {} would lie in two squares of {}", block[0], block[1], tiles.side);
        return Err(Rejection::DoesNotBuild { reason });
    }
    if most > MOST_LISTED {
        return Err(Rejection::OverLimits { reason: format!("{most} blocks, and a list has {MOST_LISTED}") });
    }
    let room = most.next_power_of_two().max(64);
    Ok(Listed { bytes: 2 * room + 16, facts: vec![square_fact(p), ("LIST", room as i64)] })
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use super::*;
    use crate::attention::Attention;

    #[test]
    fn a_list_has_room_for_all_blocks_and_none_lies_in_two_squares() {
        let p = Attention::parse("b=1,h=1,sq=2048,d=64,dtype=f16,mask=tiles,tile=128,live=40").unwrap();
        let of = |block, most| listed(&p, block, most);
        assert_eq!(of([64, 128], 32).unwrap().bytes, 2 * 64 + 16);
        let some = of([128, 64], 65).unwrap();
        assert_eq!((some.bytes, some.facts.contains(&("LIST", 128))), (2 * 128 + 16, true));
        assert!(matches!(of([192, 64], 32), Err(Rejection::DoesNotBuild { .. })));
        assert!(matches!(of([64, 64], MOST_LISTED + 1), Err(Rejection::OverLimits { .. })));
        let plain = Attention::parse("h=1,sq=4096,d=64,dtype=f16").unwrap();
        assert_eq!(listed(&plain, [192, 64], 1 << 20).unwrap().bytes, 0);
    }
}
