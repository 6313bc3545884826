//! A registry of the embedded templates and of what is uploaded, without a disk. Every input meets the same one: reading
//! the templates takes longer than most inputs do.

use std::sync::LazyLock;

use registry_svc::{Config, ForeignFormat, Registry, RegistryServer};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let config = Config {
        import: ForeignFormat::ALL.to_vec(),
        auto_route: true,
        ..Config::default()
    };
    Registry::open(config).expect("it needs nothing of the disk")
});

/// The registry as a service.
pub fn server() -> RegistryServer {
    REGISTRY.service()
}
