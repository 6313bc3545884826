//! The measurements. Each one is a chapter of the results.

mod attacks;
mod authorize;
mod cascade;
mod cluster;
mod delay;
mod fan_out;
mod groups;
mod idle;
mod loads;
mod memory;
mod postgres;
mod recovery;
mod resolve;
mod screen;
mod spawn;
mod templates;
mod transcripts;

use futures::future::LocalBoxFuture;

use crate::{figure::Chapter, plan::Plan};

/// A measurement of one chapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    name: &'static str,
    pub(crate) run: fn(Plan) -> LocalBoxFuture<'static, Chapter>,
}

impl Measure {
    /// In the order of the documentation.
    pub(crate) const ALL: [Self; 16] = [
        Self::new("spawn", |plan| Box::pin(spawn::run(plan))),
        Self::new("postgres", |plan| Box::pin(postgres::run(plan))),
        Self::new("cluster", |plan| Box::pin(cluster::run(plan))),
        Self::new("resolve", |plan| Box::pin(resolve::run(plan))),
        Self::new("authorize", |plan| Box::pin(authorize::run(plan))),
        Self::new("fan-out", |plan| Box::pin(fan_out::run(plan))),
        Self::new("delay", |plan| Box::pin(delay::run(plan))),
        Self::new("groups", |plan| Box::pin(groups::run(plan))),
        Self::new("transcripts", |plan| Box::pin(transcripts::run(plan))),
        Self::new("cascade", |plan| Box::pin(cascade::run(plan))),
        Self::new("recovery", |plan| Box::pin(recovery::run(plan))),
        Self::new("memory", |plan| Box::pin(memory::run(plan))),
        Self::new("idle", |plan| Box::pin(idle::run(plan))),
        Self::new("screen", |plan| Box::pin(screen::run(plan))),
        Self::new("templates", |plan| Box::pin(templates::run(plan))),
        Self::new("attacks", |plan| Box::pin(attacks::run(plan))),
    ];

    const fn new(name: &'static str, run: fn(Plan) -> LocalBoxFuture<'static, Chapter>) -> Self {
        Self { name, run }
    }

    /// Returns the measurement with this name.
    ///
    /// # Errors
    ///
    /// A message with all names, if the name is unknown.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(|measure| measure.name).join(", ");
        let found = Self::ALL.into_iter().find(|measure| measure.name == name);
        found.ok_or_else(|| format!("unknown measurement \"{name}\"; use one of: {}", names()))
    }
}
