"""A client and a runner of Troupe, on the stubs that `setup` generates from the published protos."""
