"""Other nodes by libp2p: who is there, what they announce, small questions. A node works without it."""
