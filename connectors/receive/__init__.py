"""Messages of engines in, from ZMQ sockets to bundles in memory.

`subscriber` is the entrance. `socket_thread` owns the sockets and reads them by `compiled_receiver` (until
that is loaded, by `plain_receiver`) into `hand_over`; in the event loop `pump` takes from there, in the order
of `turns`.
"""
