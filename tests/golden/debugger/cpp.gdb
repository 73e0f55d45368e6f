# gdb -x FILE --args python repro.py --here, for 0.3 cpp_fused_relu_1
set confirm off
set breakpoint pending on
set print thread-events off
set width 0
break cpp_fused_relu_1
run
if !$_isvoid($_exitcode) || !$_isvoid($_exitsignal)
  echo the process ended before the kernel\n
end
set $arg_buf3 = in_ptr0
set $arg_l_weight_view = out_ptr0
echo \n0.3 cpp_fused_relu_1: stopped at the kernel; its arguments are listed above\n
echo in gdb they are $arg_buf3, $arg_l_weight_view\n
tcatch throw
echo continue runs it; a crash or an exception stops it again; print *$arg_buf3@8 shows elements\n
