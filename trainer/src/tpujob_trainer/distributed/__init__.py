"""How processes find, know and lose each other.

- `failure`: Who ended the run, and what each process says about it. Pure.
- `initialize`: The begin of a process: who it is, who else is there, and JAX told so explicitly. Nothing is guessed.
- `kv_store`: Words between the processes of a run, through JAX's coordination service: no device, and always a time
  limit.
- `peer_monitor`: The line that each process keeps to process 0, from the moment they have met until they part.
- `rendezvous_client`: Everybody meets before JAX starts, so that whoever is missing can be named.
- `rendezvous_messages`: What processes say to each other before JAX starts, and what follows from it. Pure.
- `rendezvous_server`: Process 0's side of the meeting: one thread, non-blocking sockets; what is no process of this
  run is dropped.
- `versions`: What is installed here, in a few words that two hosts of a run can compare.
"""
