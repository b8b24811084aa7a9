//! The tuner-neutral form of a space: parameters, restrictions, and where it was measured a row per config.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Recorded, RecordedError, Row, unique};
use warplap_core::space::{Axis, Space, Value};

/// One parameter as it is written in files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) values: Vec<Value>,
}

/// A file of the neutral form. What is not known here is passed over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Neutral {
    #[serde(default, deserialize_with = "or_nothing")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "String::is_empty")]
    pub(super) kernel: String,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "String::is_empty")]
    pub(super) device: String,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "String::is_empty")]
    pub(super) source: String,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "String::is_empty")]
    pub(super) licence: String,
    pub(super) params: Vec<Param>,
    #[serde(default, deserialize_with = "or_nothing")]
    pub(super) restrictions: Vec<String>,
    /// Value numbers, counted in the order of `params`' values.
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub(super) configs: Vec<Vec<u16>>,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub(super) time_ms: Vec<Option<f64>>,
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub(super) status: Vec<String>,
}

/// What is `null` in a file is as good as not there.
fn or_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

impl Neutral {
    pub(super) fn axes(&self) -> Vec<Axis> {
        self.params.iter().map(|p| Axis::values_of(&p.name, p.values.iter().cloned())).collect()
    }

    /// The space its axes and restrictions define.
    pub(super) fn space(&self) -> Result<Space, RecordedError> {
        let axes = self.axes();
        unique(&axes)?;
        let mut space = axes.into_iter().fold(Space::single(), Space::axis);
        for restriction in &self.restrictions {
            space = space.constrain(restriction)?;
        }
        Ok(space)
    }

    /// The rows it holds, as a space of exactly those. Of a file that was torn those count whose time is there too.
    pub(super) fn recorded(&self, torn: bool) -> Result<Recorded, RecordedError> {
        let (rows, times) = (self.configs.len(), self.time_ms.len());
        if rows != times && !torn {
            return Err(RecordedError::Form(format!(
                "'configs' has {rows} rows and 'time_ms' {times}: expected as many"
            )));
        }
        let axes = self.axes();
        let mut result = Vec::with_capacity(rows);
        for (n, (config, time)) in self.configs.iter().zip(&self.time_ms).enumerate() {
            let number = |(i, v): (usize, &u16)| axes.get(i)?.number(self.params.get(i)?.values.get(usize::from(*v))?);
            let point = config.iter().enumerate().map(number).collect::<Option<Vec<u16>>>();
            let point = point.filter(|p| p.len() == axes.len()).ok_or_else(|| {
                RecordedError::Form(format!("row {n} of 'configs' names a value that 'params' does not have"))
            })?;
            let status = self.status.get(n).map_or("failed", String::as_str);
            result.push(Row { point, time_ms: time.ok_or_else(|| status.to_string()) });
        }
        let mut recorded = Recorded::new(axes, result)?;
        recorded.name.clone_from(&self.name);
        recorded.kernel.clone_from(&self.kernel);
        recorded.device.clone_from(&self.device);
        recorded.source.clone_from(&self.source);
        recorded.licence.clone_from(&self.licence);
        recorded.restrictions.clone_from(&self.restrictions);
        Ok(recorded)
    }

    /// A recorded space in this form.
    pub(super) fn of(recorded: &Recorded) -> Neutral {
        let mut neutral = Neutral {
            name: recorded.name.clone(),
            kernel: recorded.kernel.clone(),
            device: recorded.device.clone(),
            source: recorded.source.clone(),
            licence: recorded.licence.clone(),
            restrictions: recorded.restrictions.clone(),
            ..Neutral::default()
        };
        for axis in recorded.space.axes() {
            neutral.params.push(Param { name: axis.name().into(), values: axis.values().to_vec() });
        }
        for index in 0..recorded.len() {
            neutral.configs.push(recorded.point(index));
            neutral.time_ms.push(recorded.time_ms(index).ok());
            neutral.status.push(recorded.time_ms(index).map_or_else(str::to_string, |_| "ok".into()));
        }
        neutral
    }
}
