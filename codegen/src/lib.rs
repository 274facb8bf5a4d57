//! Typed handles, structured IR, op catalogue, CUDA C++ printer and static cost of Lathe.
