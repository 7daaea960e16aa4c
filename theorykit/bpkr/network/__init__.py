"""Networks of finite width."""
