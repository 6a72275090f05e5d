"""The chain: the only package that knows web3, ABIs, gas and nonces."""
