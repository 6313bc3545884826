//! The admin port of a process.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    task::yield_now,
};
use tonic::transport::Channel;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{client::endpoint, within};

/// The log line that the process writes when the port is open.
const SERVING: &str = "serving health and metrics";

/// The admin port of a process.
pub struct Admin {
    health: HealthClient<Channel>,
}

impl Admin {
    /// Returns the admin port of a process that logs JSON at level `info` to a pipe.
    ///
    /// # Panics
    ///
    /// If the process ends before the port is open.
    pub async fn of(process: &mut Child) -> Self {
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let address: SocketAddr = within("the admin port", async {
            loop {
                let line = log.next_line().await.unwrap().expect("a running process");
                let said: Value = serde_json::from_str(&line).unwrap_or_default();
                if said["message"] == SERVING {
                    return said["address"].as_str().unwrap().parse().unwrap();
                }
            }
        })
        .await;
        // Reads the pipe to its end, so that the process never blocks on it.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Self {
            health: HealthClient::new(endpoint(address).connect_lazy()),
        }
    }

    /// Returns whether the named service is serving. The process must know the service.
    pub async fn is_serving(&self, name: &str) -> bool {
        let request = HealthCheckRequest {
            service: name.to_owned(),
        };
        let answer = self.health.clone().check(request).await.unwrap();
        answer.get_ref().status() == ServingStatus::Serving
    }

    /// Waits until the health of the named service is serving or, if `is_serving` is false, not serving.
    pub async fn until(&self, name: &str, is_serving: bool) {
        within("a change of health", async {
            while self.is_serving(name).await != is_serving {
                yield_now().await;
            }
        })
        .await;
    }
}
