"""A client and a runner of Troupe, based on the stubs that `setup` generates from the published protos."""
