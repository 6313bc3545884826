//! Spawns with the log in PostgreSQL, against spawns with the log in SQLite.

use troupe_tests::postgres_server::Server;

use super::{loads, spawn::Spawns};
use crate::{
    figure::Chapter,
    plan::Plan,
    served::{Served, Upkeep},
};

pub(crate) async fn run(plan: Plan) -> Chapter {
    let database = Server::start(&[]);
    let url = database.url("postgres", &database.create_database());
    let registry = Served::registry(None).await;
    let files = Served::supervisor(registry.address, Upkeep::Usual).await;
    let tables = Served::supervisor_with(&url, registry.address).await;
    let spawns = |supervisor: &Served| Spawns {
        supervisor: supervisor.address,
        connections: plan.connections,
        is_watched: false,
    };
    let (mut figures, _) = loads::rates(plan, ("SQLite", &spawns(&files)), &spawns(&tables), 0.4).await;
    let alone = figures.remove(0).at_least(0.25);
    figures.insert(0, alone);
    Chapter {
        title: "The log in PostgreSQL",
        how: format!(
            "SpawnAgent as in the first table, with a PostgreSQL server on the same machine and disk, reached over a \
             Unix socket, without standbys. Medians of {} rounds.",
            plan.rounds
        ),
        figures,
    }
}
