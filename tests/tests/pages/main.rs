//! Pages of the documentation and files for clients that are generated from the code or name parts of it, and the rules
//! of the architecture.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api_reference;
mod architecture;
mod limits;
mod operating_page;
mod reliability_page;
mod requested_features;
mod security_page;
mod service_config;
