"""The special functions of scipy that statistics need, loaded by the commands that analyze."""

from scipy.special import bdtr, betaincinv, chdtri, fdtrc, gammaln, ndtri, stdtr, stdtrit

__all__ = ["bdtr", "betaincinv", "chdtri", "fdtrc", "gammaln", "ndtri", "stdtr", "stdtrit"]
