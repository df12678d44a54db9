"""The explorer: a page that shows the chain in a browser, and the read-only JSON it is fed with.

Not part of the chain: it only looks. `server` is the wire, `views` turns the state into JSON, `history` remembers
what the state forgets (extrinsics with their outcome, epochs), `page/` is what the browser runs: no build step,
nothing from elsewhere.
"""
