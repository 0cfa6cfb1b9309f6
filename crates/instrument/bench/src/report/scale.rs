//! Scales of charts, and their ticks.

/// A scale from values to positions on an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// Returns a linear scale from 0 for all values.
    pub fn linear(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let high = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if high > 0.0 { high * 1.02 } else { 1.0 };
        Self {
            low: 0.0,
            high,
            log: false,
            start,
            end,
        }
    }

    /// Returns a linear scale for all values that does not begin at 0.
    pub fn around(values: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let low = values
            .clone()
            .filter(|value| value.is_finite())
            .fold(f64::INFINITY, f64::min);
        let high = values
            .filter(|value| value.is_finite())
            .fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self {
                low: 0.0,
                high: 1.0,
                log: false,
                start,
                end,
            };
        }
        let air = ((high - low) * 0.1).max(high.abs() * 0.02).max(1e-9);
        Self {
            low: low - air,
            high: high + air,
            log: false,
            start,
            end,
        }
    }

    /// Returns a logarithmic scale for all positive values.
    pub fn log(values: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let low = positive.clone().fold(f64::INFINITY, f64::min);
        let high = positive.fold(0.0, f64::max);
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        Self {
            low: low / 1.3,
            high: high * 1.3,
            log: true,
            start,
            end,
        }
    }

    /// Returns the position of a value.
    pub fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + (self.end - self.start) * part.clamp(0.0, 1.0)
    }

    /// Returns the values of grid lines, which are round.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            self.log_ticks()
        } else {
            self.linear_ticks()
        }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let raw = (self.high - self.low) / 5.0;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|m| m * power)
            .find(|step| *step >= raw)
            .unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        (first..first + 12)
            .map(|i| i as f64 * step)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = self.high.log10() - self.low.log10();
        let steps: &[f64] = if decades < 1.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let first = self.low.log10().floor() as i32;
        let all = (first..first + 20)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.skip_while(|tick| *tick < self.low)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale::linear([3.0, 47.0].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let scale = Scale::log([200.0, 287_000.0].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(), [1_000.0, 10_000.0, 100_000.0]);
        assert!(scale.at(200.0) > 0.0 && scale.at(287_000.0) < 100.0);
    }

    #[test]
    fn an_empty_report_does_not_divide_by_zero() {
        let none = std::iter::empty::<f64>;
        for scale in [
            Scale::linear(none(), 0.0, 9.0),
            Scale::log(none(), 0.0, 9.0),
            Scale::around(none(), 0.0, 9.0),
        ] {
            assert!(scale.at(0.0).is_finite() && !scale.ticks().is_empty());
        }
    }
}
