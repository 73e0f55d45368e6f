# cuda-gdb -x FILE --args python repro.py --here, for 0.2 lookup_kernel_0
set pagination off
set confirm off
set breakpoint pending on
set print thread-events off
set width 0
set environment CUDA_LAUNCH_BLOCKING 1
break lookup_kernel
run
if !$_isvoid($_exitcode) || !$_isvoid($_exitsignal)
  echo the process ended before the kernel\n
  quit 1
end
echo \n0.2 lookup_kernel_0: stopped at the kernel; its arguments are listed above\n
info cuda kernels
x/i $pc
delete
continue
if !$_isvoid($_exitcode)
  quit $_exitcode
end
if $_isvoid($_exitsignal)
  echo \nthe fault:\n
  info cuda kernels
  set $fault = $pc
  if !$_isvoid($errorpc)
    set $fault = $errorpc
  end
  info line *$fault
  x/i $fault
  bt 4
  kill
  quit 11
end
quit 11
