//! Results as data. Tables and plots are made only from these types.

/// A group of results with its own table.
#[derive(Clone, Debug)]
pub(crate) struct Chapter {
    pub(crate) title: &'static str,
    /// Description of the measurement, in sentences.
    pub(crate) how: String,
    pub(crate) figures: Vec<Figure>,
}

/// One number.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) against: Option<Against>,
    pub(crate) bar: Option<Bar>,
}

/// The baseline of a figure: in most cases its floor, the lowest possible cost.
#[derive(Clone, Debug)]
pub(crate) struct Against {
    pub(crate) name: &'static str,
    /// In the unit of the figure.
    pub(crate) value: f64,
}

/// The target of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) of: Of,
    pub(crate) side: Side,
    pub(crate) limit: f64,
}

/// The quantity that a bar limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The ratio to the baseline or, without a baseline, the figure itself.
    Ratio,
    /// The figure itself.
    Value,
}

/// The side of a bar on which a value meets the bar.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    AtMost,
    AtLeast,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            against: None,
            bar: None,
        }
    }

    /// Sets the baseline.
    pub(crate) fn against(self, name: &'static str, value: f64) -> Self {
        Self {
            against: Some(Against { name, value }),
            ..self
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        self.bar(Of::Ratio, Side::AtMost, limit)
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        self.bar(Of::Ratio, Side::AtLeast, limit)
    }

    pub(crate) fn value_at_least(self, limit: f64) -> Self {
        self.bar(Of::Value, Side::AtLeast, limit)
    }

    pub(crate) fn value_at_most(self, limit: f64) -> Self {
        self.bar(Of::Value, Side::AtMost, limit)
    }

    fn bar(self, of: Of, side: Side, limit: f64) -> Self {
        Self {
            bar: Some(Bar { of, side, limit }),
            ..self
        }
    }

    /// Returns the value divided by the baseline.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.against.as_ref().map(|against| self.value / against.value)
    }

    /// Returns whether the figure meets its bar; `None` if it has no bar.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.bar.map(|bar| {
            let measured = match bar.of {
                Of::Ratio => self.ratio().unwrap_or(self.value),
                Of::Value => self.value,
            };
            match bar.side {
                Side::AtMost => measured <= bar.limit,
                Side::AtLeast => measured >= bar.limit,
            }
        })
    }
}

/// Formats a number for readers, with significant digits only and with commas.
pub(crate) fn shown(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + part
}
