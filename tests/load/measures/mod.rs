//! The measurements: one chapter each.

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

/// One of the chapters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    Spawn,
    Postgres,
    Cluster,
    Resolve,
    Authorize,
    FanOut,
    Delay,
    Groups,
    Transcripts,
    Cascade,
    Recovery,
    Memory,
    Idle,
    Screen,
    Templates,
    Attacks,
}

impl Measure {
    /// In the order of the documentation.
    pub(crate) const ALL: [Self; 16] = [
        Self::Spawn,
        Self::Postgres,
        Self::Cluster,
        Self::Resolve,
        Self::Authorize,
        Self::FanOut,
        Self::Delay,
        Self::Groups,
        Self::Transcripts,
        Self::Cascade,
        Self::Recovery,
        Self::Memory,
        Self::Idle,
        Self::Screen,
        Self::Templates,
        Self::Attacks,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Postgres => "postgres",
            Self::Cluster => "cluster",
            Self::Resolve => "resolve",
            Self::Authorize => "authorize",
            Self::FanOut => "fan-out",
            Self::Delay => "delay",
            Self::Groups => "groups",
            Self::Transcripts => "transcripts",
            Self::Cascade => "cascade",
            Self::Recovery => "recovery",
            Self::Memory => "memory",
            Self::Idle => "idle",
            Self::Screen => "screen",
            Self::Templates => "templates",
            Self::Attacks => "attacks",
        }
    }

    /// The one of that name.
    ///
    /// # Errors
    ///
    /// The names that there are.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|measure| measure.name() == name);
        found.ok_or_else(|| format!("nothing is named {name}; there are {}", names()))
    }

    pub(crate) fn run(self, plan: Plan) -> LocalBoxFuture<'static, Chapter> {
        match self {
            Self::Spawn => Box::pin(spawn::run(plan)),
            Self::Postgres => Box::pin(postgres::run(plan)),
            Self::Cluster => Box::pin(cluster::run(plan)),
            Self::Resolve => Box::pin(resolve::run(plan)),
            Self::Authorize => Box::pin(authorize::run(plan)),
            Self::FanOut => Box::pin(fan_out::run(plan)),
            Self::Delay => Box::pin(delay::run(plan)),
            Self::Groups => Box::pin(groups::run(plan)),
            Self::Transcripts => Box::pin(transcripts::run(plan)),
            Self::Cascade => Box::pin(cascade::run(plan)),
            Self::Recovery => Box::pin(recovery::run(plan)),
            Self::Memory => Box::pin(memory::run(plan)),
            Self::Idle => Box::pin(idle::run(plan)),
            Self::Screen => Box::pin(screen::run(plan)),
            Self::Templates => Box::pin(templates::run(plan)),
            Self::Attacks => Box::pin(attacks::run(plan)),
        }
    }
}
