"""How processes find, know and lose each other.

- `failure`: Who ended the run, and what each process says about it. Pure.
- `host_check`: What the hosts of a run found out about themselves before the first step, and which is slow or wrong.
  Pure.
- `initialize`: Process initialisation: who it is, who else is there, and JAX told so explicitly. Nothing is guessed.
- `kv_store`: Key-value store, barriers and broadcast between the processes of a run: no device, and always a time
  limit.
- `peer_monitor`: The connection that each process keeps to process 0, from the rendezvous to its end.
- `rendezvous_client`: Everybody meets before JAX starts, so that whoever is missing can be named.
- `rendezvous_messages`: What processes say to each other before JAX starts, and what follows from it. Pure.
- `rendezvous_server`: The rendezvous server, on process 0: one thread, non-blocking sockets; what is no process of
  this run is dropped.
- `versions`: What is installed here, in a few words that two hosts of a run can compare.
"""
