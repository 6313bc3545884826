//! A registry with the embedded templates and uploaded ones, without a disk. All inputs use the same registry, because
//! reading the templates takes longer than most inputs.

use std::sync::LazyLock;

use registry_svc::{Config, ForeignFormat, Registry, RegistryServer};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let config = Config {
        import: ForeignFormat::ALL.to_vec(),
        auto_route: true,
        ..Config::default()
    };
    Registry::open(config).expect("the registry needs no disk")
});

/// Returns the registry service.
pub fn server() -> RegistryServer {
    REGISTRY.service()
}
