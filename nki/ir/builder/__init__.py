"""Building tile IR: by call (`builder`, over a `core_builder` for each core), and what
tracing has in common with it.

`emission` makes an operation of a row and its fields, `legalise` checks them. `allocation`,
`assignment`, `registers`, `loops` and `groups` have the rest of what bodies hold, `declarations`
and `guards` what the cores of a kernel share, `results` what it returns. `inline` and `repeat`
place finished kernels (`bindings`); `edges` orders operations by name.
"""
