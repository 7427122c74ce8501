/* The one function of Windows' bcryptprimitives.dll that Rust's standard library calls, for versions of Wine that lack
   the library (before 9). */
#include <windows.h>
#include <ntsecapi.h>

BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }
