//! Cards: what each measured of itself comes in; how far it is off its class goes out. Cards of one model differ by up to
//! a third, and one that does should not screen for the others.

use std::collections::BTreeMap;

use serde::Serialize;
use warplap_core::split::gate;
use warplap_core::store::Store;

use super::session::Session;
use super::tables::device_id;

/// The note in which a store keeps what it measured of a device.
const NOTE: &str = "ceilings";

/// A card of the fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// Its name.
    pub id: String,
    /// Its device's folder name.
    pub device: String,
    /// The machine it is in.
    pub node: String,
    /// What it reaches: FLOP/s by type, and bytes a second.
    pub ceilings: BTreeMap<String, f64>,
    /// How far it is off the median of its class, where there are others: the largest share over its ceilings.
    pub off: Option<f64>,
}

impl Gpu {
    /// Whether its times may rank candidates for other cards.
    pub fn passes(&self) -> bool {
        self.off.is_none_or(|off| off.abs() <= gate::OFF)
    }
}

/// Tells the fleet of the devices that this store has measured.
pub fn tell(session: &mut Session, near: &Store, origin: &str, node: &str) -> Result<(), postgres::Error> {
    let mut all = session.begin()?;
    for (slug, _) in near.notes().into_iter().filter(|(_, name)| name == NOTE) {
        let Some(ceilings) = near.note(&slug, NOTE) else { continue };
        // Its hard fingerprint is in its records; a device without any is told of with the first.
        let known = all.query_opt("select hard from warplap.device where slug = $1", &[&slug])?;
        let Some(hard) = known.map(|row| row.get::<_, String>(0)) else { continue };
        let device = device_id(&mut all, &slug, &hard)?;
        all.execute(
            "insert into warplap.card (id, device, origin, node, ceilings) values ($1, $2, $3, $4, $5) \
             on conflict (id) do update set node = excluded.node, ceilings = excluded.ceilings, seen = now()",
            &[&format!("{origin}:{slug}"), &device, &origin, &node, &ceilings.to_string()],
        )?;
    }
    all.commit()
}

/// The cards of a fleet.
pub fn all(session: &mut Session) -> Result<Vec<Gpu>, postgres::Error> {
    const SQL: &str = "select c.id, d.slug, c.node, c.ceilings from warplap.card c join warplap.device d on d.id = c.device \
         join warplap.origin o on o.id = c.origin where o.admitted is not null and o.revoked is null order by 2, 1";
    let read = |row: &postgres::Row| Gpu {
        id: row.get(0),
        device: row.get(1),
        node: row.get(2),
        ceilings: numbers(row.get(3)),
        off: None,
    };
    let mut cards: Vec<Gpu> = session.rows(SQL, &[])?.iter().map(read).collect();
    compare(&mut cards);
    Ok(cards)
}

/// The numbers that cards are compared by.
fn numbers(text: &str) -> gate::Reach {
    serde_json::from_str(text).map(|ceilings| gate::reach(&ceilings)).unwrap_or_default()
}

/// Says of each card how far it is off the median of its class.
fn compare(cards: &mut [Gpu]) {
    let mut of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, card) in cards.iter().enumerate() {
        of.entry(card.device.clone()).or_default().push(at);
    }
    for class in of.into_values() {
        let reach: Vec<gate::Reach> = class.iter().map(|at| cards[*at].ceilings.clone()).collect();
        class.into_iter().zip(gate::off(&reach)).for_each(|(at, off)| cards[at].off = off);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_compared_with_the_median_of_its_class() {
        let card = |device: &str, flops: f64| Gpu {
            id: format!("{device}{flops}"),
            device: device.into(),
            node: "n".into(),
            ceilings: BTreeMap::from([("f32".into(), flops), ("memory".into(), 1.0)]),
            off: None,
        };
        let mut cards = vec![card("a", 100.0), card("a", 101.0), card("a", 70.0), card("b", 5.0)];
        compare(&mut cards);
        let passes: Vec<bool> = cards.iter().map(Gpu::passes).collect();
        assert_eq!(passes, [true, true, false, true]);
        assert!((cards[2].off.unwrap() + 0.3).abs() < 1e-9 && cards[3].off.is_none());
    }
}
