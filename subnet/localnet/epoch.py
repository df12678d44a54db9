def block_step(ctx): pass
