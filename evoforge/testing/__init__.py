"""Contract suites for what plugs in. Imported by tests only, of this project and of others."""

__all__: list[str] = []
