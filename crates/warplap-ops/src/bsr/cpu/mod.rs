//! Block-sparse products on the CPU. The order of the list is the order of ties; the first is the reference.

mod columns;
mod dense;
mod finish;
mod matrix;
mod pack;
mod panels;
mod reference;
mod rows;
mod scratch;
mod setting;
mod split;
mod thin;
mod tile;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Bsr;

/// Who may race.
pub fn catalog() -> Catalog<Bsr, Cpu> {
    Catalog::new(Arc::new(reference::Reference))
        .with(Arc::new(rows::Rows))
        .with(Arc::new(panels::Panels))
        .with(Arc::new(columns::Columns))
        .with(Arc::new(split::Split))
        .with(Arc::new(thin::Thin))
        .with(Arc::new(dense::Dense))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsr::{SLOTS, slot};
    use warplap_core::arg::Arg;
    use warplap_core::device::Device;
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;

    #[test]
    fn every_variant_adds_to_c_itself_where_the_product_is_in_place() {
        let device = Cpu::new();
        for text in [
            "m=64,k=96,n=40,bs=16,density=0.5,alpha=-0.5,beta=2,inplace=true",
            "m=64,k=64,n=5,bs=8,density=0.9,beta=1,inplace=true,dtype=bf16",
            "m=96,k=256,n=200,bs=32,density=0.5,imbalance=2,beta=-1,inplace=true,turned=true",
            "m=64,k=96,n=9,bs=16,bc=32,density=0,beta=3,inplace=true,c=col",
            "m=64,k=96,n=9,bs=16,bc=32,density=0.4,alpha=0.5,beta=3,inplace=true,dtype=f8e4m3",
        ] {
            let p = Bsr::parse(text).unwrap();
            let (signature, inputs) = (Bsr::signature(&p), Bsr::draw(&p, &mut fastrand::Rng::with_seed(7)));
            let answer = &Bsr::answer(&p, &inputs)[0];
            let mut buffers: Vec<_> = inputs.iter().map(|input| device.upload(input).unwrap()).collect();
            let mut tried = 0;
            for variant in catalog().variants() {
                let Some(config) = variant.space(&p, &device).default_config() else { continue };
                if matches!(variant.fit(&p, &device), Fit::Aside(_)) {
                    continue;
                }
                device.write(&mut buffers[slot::C], &inputs[slot::C]).unwrap();
                let mut args: [Arg<'_, Cpu>; SLOTS] = Default::default();
                for (i, buffer) in buffers.iter_mut().enumerate().filter(|(i, _)| signature.slots()[*i].present) {
                    let whole = 0..inputs[i].len();
                    args[i] = match i {
                        slot::C => Arg::Write(device.view_mut(buffer, whole)),
                        _ => Arg::Read(device.view(buffer, whole)),
                    };
                }
                variant.build(&p, &config, &device).unwrap().launch(&mut args, &()).unwrap();
                let output = device.download(&buffers[slot::C]).unwrap();
                for (i, wanted) in answer.values.iter().enumerate() {
                    assert!((output.at(i) - wanted).abs() < 0.05, "{text}: {} at {i}: {}", variant.id(), output.at(i));
                }
                tried += 1;
            }
            assert!(tried >= if p.is_bytes() { 1 } else { 2 }, "{text}");
        }
    }
}
