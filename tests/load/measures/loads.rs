//! The comparison of two kinds of calls: the rate of responses, and the latency at fractions of that rate.

use crate::{
    arrivals::{Arrivals, Rounds, Target, rate},
    figure::Figure,
    plan::Plan,
};

/// The rates of the open loops, in percent of the service's highest rate.
pub(super) const LOADS: [u32; 3] = [25, 50, 75];

/// Measures the responses per second in closed loops. Returns a figure for each number of callers, and the highest
/// rate. Only the last figure has the bar.
pub(super) async fn rates(
    plan: Plan,
    (name, floor): (&'static str, &impl Target),
    service: &impl Target,
    at_least: f64,
) -> (Vec<Figure>, f64) {
    let (mut figures, mut most) = (Vec::new(), 0.0_f64);
    for callers in plan.callers {
        let found = Rounds::of(plan, Arrivals::Callers(*callers), floor, service).await;
        let answered = rate(&found.service);
        most = most.max(answered);
        let figure = Figure::new(format!("{callers} callers"), answered, "calls/s").against(name, rate(&found.floor));
        figures.push(figure);
    }
    let last = figures.pop().map(|figure| figure.at_least(at_least));
    figures.extend(last);
    (figures, most)
}

/// Returns an open loop at `load` percent of the highest rate.
pub(super) fn at(load: u32, most: f64) -> Arrivals {
    Arrivals::PerSecond(most * f64::from(load) / 100.0)
}
