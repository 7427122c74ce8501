"""Serves a model with llama.cpp's own server, on one thread: `server.py MODEL SLOTS`. Prints the address, and serves
until standard input is closed."""

import sys

import xllamacpp

model, slots = sys.argv[1], int(sys.argv[2])
parameters = xllamacpp.CommonParams()
parameters.model.path = model
parameters.port = 0
parameters.n_parallel = slots
parameters.n_ctx = 1024 * slots
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
parameters.sampling.temp = 0
parameters.endpoint_slots = True
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
