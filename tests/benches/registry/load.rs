//! A closed loop: so many connections, each with one call at a time, until a fixed number of calls is done.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tonic::transport::Channel;

use crate::{Plan, site::connect};

/// What a run took.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Calls a second, over all connections.
    pub(crate) rate: f64,
    /// What each call took, sorted.
    pub(crate) latencies: Vec<Duration>,
}

/// Runs the plan's calls once to warm up and once to measure.
pub(crate) async fn run<F, C>(plan: Plan, address: SocketAddr, call: F) -> Run
where
    F: Fn(Channel) -> C + Clone + Send + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    let mut channels = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        channels.push(connect(address).await);
    }
    once(plan, &channels, &call).await;
    once(plan, &channels, &call).await
}

async fn once<F, C>(plan: Plan, channels: &[Channel], call: &F) -> Run
where
    F: Fn(Channel) -> C + Clone + Send + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let loops: Vec<_> = channels
        .iter()
        .map(|channel| {
            let (channel, call) = (channel.clone(), call.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(plan.calls);
                for _ in 0..plan.calls {
                    let start = Instant::now();
                    call(channel.clone()).await;
                    latencies.push(start.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::with_capacity(plan.calls * channels.len());
    for each in loops {
        latencies.extend(each.await.unwrap());
    }
    let seconds = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let calls = u32::try_from(latencies.len()).unwrap();
    Run {
        rate: f64::from(calls) / seconds,
        latencies,
    }
}
