"""Five steps of JAX on a CPU, of which each sleeps 20 ms in `make_batch`: python jax_steps.py FOLDER."""
import sys
import time

import jax
import jax.numpy as jnp


@jax.jit
def update(weight, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(batch @ w) @ w) ** 2))(weight)
    return weight - 0.1 * gradient, loss


@jax.jit
def make_batch(seed):
    return jnp.sin(seed + jnp.arange(64 * 512.0).reshape(64, 512))


def step(weight, number):
    with jax.profiler.TraceAnnotation("make_batch"):
        time.sleep(0.02)
        batch = make_batch(float(number))
    weight, loss = update(weight, batch)
    loss.block_until_ready()
    return weight


weight = step(jnp.ones((512, 512)) / 512, 0)
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with jax.profiler.trace(sys.argv[1], profiler_options=options):
    for number in range(5):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weight = step(weight, number)
