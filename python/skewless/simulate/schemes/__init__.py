"""The routing schemes that choose a worker for each tuple: one file an idea. `skewless.simulate.catalogue`
names them."""
